"""Config sections: their keys, their checks, and the objects built from them."""
