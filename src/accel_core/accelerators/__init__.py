"""The live objects: the interface, the accelerator over any torch device module, the built-in CPU.

Nothing here knows of plugins, finding or choosing. Importing these modules does not import torch;
constructing an accelerator does.
"""
