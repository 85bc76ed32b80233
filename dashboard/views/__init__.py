"""What a page shows, read from the store: plain data, no Streamlit, no Plotly."""
