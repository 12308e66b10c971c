"""The rewrites of a model's weights by name. No torch."""

NEURONS, VALUES, NORMS, NORMS_WHOLE, DECOYS = "neurons", "values", "norms", "norms-whole", "decoys"
# id -> what is done, as tables, pages and help say it. Ids are stored: never renamed.
REWRITES = {
    NEURONS: "rows of up_proj times powers of two, the columns of down_proj that read them divided by them",
    VALUES: "rows of v_proj times powers of two, the columns of o_proj that read them divided by them",
    NORMS: "the powers of two in norm weights folded into the Linears that read the norm",
    NORMS_WHOLE: "whole norm weights folded into the Linears that read the norm, which rounds",
    DECOYS: "neurons added with huge weights and outputs, which nothing reads",
}
