"""What a figure shows, in one sentence, computed from the table that it draws. No streamlit here."""
