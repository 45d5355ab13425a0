"""Find the mistake that explains a wrong result."""
