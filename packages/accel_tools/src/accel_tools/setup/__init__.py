"""Which torch, vendor package and toolkit belong on a machine: read from files, planned, printed."""
