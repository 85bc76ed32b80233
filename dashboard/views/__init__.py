"""What a page tells, read from the store: plain data, no Streamlit, no Plotly."""
