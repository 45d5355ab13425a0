"""The compiled engine: steps become native code over vectors of 32 lanes; all else runs as in the readable one.

`text` writes LLVM's language. `lanes` and `unit` have a row for every instruction that is compiled, `access`, `copying`
and `wavefronts` what memory needs. `body` writes the steps of one warp, which `segments` cuts out of a program with the
help of `liveness`; `code` compiles and keeps them. `turns` decides who runs next and calls them, `products` joins mma,
`engine` is the wave that does the rest. `context` and `turn_words` are what they tell each other.
"""
