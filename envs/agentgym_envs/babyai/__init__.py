"""BabyAI: instruction following in a grid of rooms, told and played in text."""
