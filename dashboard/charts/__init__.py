"""Tables to plotly figures, a file per subject. No streamlit and no torch here."""
