"""Find which torch, vendor package and toolkit a machine needs: read files, plan, print the command."""
