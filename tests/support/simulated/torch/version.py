__version__ = "2.99.0+simulated"
cuda = None
hip: "str | None" = None
xpu = None
