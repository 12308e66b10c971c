"""A word per selector: is it sufficient, specific, faithful, stable? Made from tables. No torch."""
