"""The compiled engine: runs of steps become native code over vectors of 32 lanes; all else runs as in the readable one.

`text` writes LLVM's language, `lanes` has a row for every instruction that is compiled, `segments` joins steps to
functions, `code` compiles and keeps them, `engine` is the wave that calls them.
"""
