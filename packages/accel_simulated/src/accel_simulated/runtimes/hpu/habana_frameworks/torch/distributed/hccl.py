"""The import that registers the collective backend. The package has done it already, as the vendor's does."""
