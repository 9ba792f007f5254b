"""BabyAI: instruction following in a grid of rooms, as text."""
