"""Charts as plain Plotly JSON: what is seen, made of what ``views`` told. No Plotly is imported."""
