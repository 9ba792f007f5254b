"""TextCraft: crafting from Minecraft recipes."""
