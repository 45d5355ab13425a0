"""Record cuBLAS's choices, make the table and the model of `warpfrag.blas.cublas` from them, and test both.

    python -m tools.choices layers layers.toml    # list the layers of public models; then: warpfrag survey layers.toml
    python -m tools.choices ask FOLDER            # GPU: query the library's choices for log-uniform shapes
    python -m tools.choices launches FOLDER       # GPU: query every attribute of a choice, its kernels and their grids
    python -m tools.choices additions FOLDER      # GPU: run special operands that reveal the order of additions
    python -m tools.choices table FOLDER          # write the table, with the segment-K kernels that `launches` found
    python -m tools.choices train FOLDER          # GPU: train the networks on the answers of `ask`
    python -m tools.choices pack FOLDER           # write the package's model file from the networks and the answers
    python -m tools.choices confirm FOLDER        # GPU: query 200 random m of every layer in the table again
    python -m tools.choices predict FOLDER        # predict new gemms
    python -m tools.choices run FOLDER            # GPU: run the same gemms with PyTorch
    python -m tools.choices compare FOLDER        # compare both, and write a table of the results

Steps marked GPU need an NVIDIA GPU and PyTorch; all others run anywhere. `ask`, `launches` and `confirm` use all
cores.
"""
