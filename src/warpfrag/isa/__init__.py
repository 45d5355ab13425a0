"""The instruction set as data: rows read from the tables and checked, names, legality. No numpy here."""
