"""What messages and documents name, and what of it exists: `texts` reads them, `collect` finds the names,
`known` and `outside` say what there is, `judge` compares."""
