"""BabyAI: instructions in a grid world, as text."""
