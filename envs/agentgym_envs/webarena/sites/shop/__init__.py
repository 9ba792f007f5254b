"""The embedded shop: django-oscar with a catalogue, customers and orders of its own."""
