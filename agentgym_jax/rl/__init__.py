"""Online reinforcement learning: config, components and the steps of the loop."""
