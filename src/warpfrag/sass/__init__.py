"""Machine code (SASS): read cubins, fatbins and host binaries, and decode their kernels.

`module_files` opens a file and returns its cubins, through `fatbin` and `cubin`; `disassembler` turns the code of a
kernel into `SassInstruction`s with the help of nvdisasm, and `instruction_parser` reads its text.
"""
