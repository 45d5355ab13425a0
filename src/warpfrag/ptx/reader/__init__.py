"""PTX text: tokens, the syntax tree, and the parser between them."""
