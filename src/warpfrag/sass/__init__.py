"""Machine code (SASS): read cubins, fatbins and host binaries, and decode their kernels.

`fatbin.read_cubins` opens a file and returns its programs as `cubin.Cubin`s. `disassembler.disassemble` turns the code
of a function into `SassInstruction`s: nvdisasm decodes it, and `instruction_parser` reads the text.
"""
