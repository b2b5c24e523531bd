"""The small replicated store that is there to be measured (replicas_image): everything that only it knows."""
