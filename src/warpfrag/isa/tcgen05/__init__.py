"""tcgen05: the instructions of tensor memory. `spelling` reads their words, `products` has their typed shapes."""
