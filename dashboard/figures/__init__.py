"""Charts as plain Plotly JSON, made from the data of ``views``. Plotly itself is not imported."""
