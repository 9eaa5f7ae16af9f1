"""How fast an accelerator is: copies, matrices, launches, collectives, each a `Measurement`.

Nothing here prints. Importing this package imports no torch.
"""
