"""From a configuration to a plan: the last stage without side effects."""
