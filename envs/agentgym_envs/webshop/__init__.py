"""WebShop: find and buy a product that fits an instruction, on a web shop shown as text."""
