"""The library's choices: how the table and the model of `warpfrag.blas.cublas` are made, and how both are tested.

    python -m tools.choices layers layers.toml    # the layers of public models; then: warpfrag survey layers.toml
    python -m tools.choices ask FOLDER            # GPU: what the library chooses for log-uniform shapes
    python -m tools.choices launches FOLDER       # GPU: every attribute of a choice, and the kernels with their grids
    python -m tools.choices additions FOLDER      # GPU: special operands that reveal the order of additions
    python -m tools.choices table FOLDER          # the table with the segment-K kernels of launches
    python -m tools.choices train FOLDER          # GPU: the networks, from these answers
    python -m tools.choices pack FOLDER           # the file of the package, from the networks and answers
    python -m tools.choices confirm FOLDER        # GPU: 200 random m of every layer of the table, asked again
    python -m tools.choices predict FOLDER        # predictions of products that nothing has seen
    python -m tools.choices run FOLDER            # GPU: the same products, run by PyTorch
    python -m tools.choices compare FOLDER        # both compared, and a table of the results

Steps marked GPU need an NVIDIA GPU and PyTorch; all others run anywhere. `ask`, `launches` and `confirm` use all
cores.
"""
