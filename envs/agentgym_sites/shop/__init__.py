"""The embedded shop: django-oscar with an invented catalogue, customers and orders."""
