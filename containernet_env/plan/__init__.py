"""From what is configured to what will be done: the last stage without side effects."""
