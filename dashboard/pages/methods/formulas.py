r"""The definitions as formulas, by the section of the page that they close. \(h_i\): output of row i at a token."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Formula:
    """What it defines, in words, and its LaTeX."""

    of: str
    latex: str

    @property
    def in_lines(self) -> str:
        """One line for each part, so that none is wider than the page."""
        return r"\begin{gathered}" + self.latex.replace(r"\qquad", r"\\[.4em]") + r"\end{gathered}"


FORMULAS: dict[str, tuple[Formula, ...]] = {
    "Rows and masks": (
        Formula(
            "The rows that a rate removes from N rows by their scores",
            r"|M(\mathrm{rate})| = \operatorname{round}(\mathrm{rate} \cdot N), \qquad"
            r" s_i \le s_j \;\; \forall\, i \in M_{\mathrm{LeRF}},\; j \notin M_{\mathrm{LeRF}}",
        ),
    ),
    "Negative log-likelihood, perplexity, gap": (
        Formula(
            "NLL of T predicted tokens, and perplexity",
            r"\mathrm{NLL} = -\frac{1}{T}\sum_{t=1}^{T} \ln p(x_t \mid x_{<t}), \qquad \mathrm{PPL} = e^{\mathrm{NLL}}",
        ),
        Formula(
            "Gap, and log gap in nats",
            r"\mathrm{gap} = \mathrm{PPL}_{\mathrm{MoRF}} - \mathrm{PPL}_{\mathrm{LeRF}}, \qquad"
            r" \mathrm{log\ gap} = \mathrm{NLL}_{\mathrm{MoRF}} - \mathrm{NLL}_{\mathrm{LeRF}}",
        ),
    ),
    "Selectors": (
        Formula("Magnitude", r"s_i = \frac{1}{d}\sum_{j=1}^{d} |W_{ij}|"),
        Formula("Wanda, X the inputs at all calibration tokens", r"s_i = \sum_j |W_{ij}| \sqrt{\mathbb{E}[X_j^2]}"),
        Formula("MeanActivation", r"s_i = \mathbb{E}\,|h_i|"),
        Formula(
            "LRP, F the summed next-token loss under the rules of AttnLRP",
            r"s_i = \mathbb{E}\,|R_i|, \qquad R_i = h_i\, \frac{\partial F}{\partial h_i}",
        ),
        Formula(
            "IG, input embeddings scaled by α",
            r"s_i = \mathbb{E}\left|\,(h_i - h_i(0)) \, \frac{1}{16}\sum_{k=1}^{16}"
            r" \frac{\partial F}{\partial h_i}(\alpha_k)\right|, \qquad \alpha_k = \tfrac{k}{16}",
        ),
        Formula(
            "Consensus-2, rank 0 = least important",
            r"s_i = \frac{\operatorname{rank}_{\mathrm{LRP}}(i) + \operatorname{rank}_{\mathrm{IG}}(i)}{2N}",
        ),
    ),
    "Rows and text": (
        Formula(
            "Relevance of row i to token t",
            r"R_i(t) = \sum_{s<t} h_i(s)\, \frac{\partial \ln p(x_t \mid x_{<t})}{\partial h_i(s)}",
        ),
    ),
    "Analyses": (
        Formula("Jaccard overlap of two masks", r"J(A, B) = \frac{|A \cap B|}{|A \cup B|}"),
        Formula(
            "Spearman's correlation of two scores, r their ranks over all rows",
            r"\rho = \frac{\operatorname{cov}(r_A, r_B)}{\sigma(r_A)\,\sigma(r_B)}",
        ),
        Formula(
            "Explained by depth: L, C, R the mean NLL of the selector's, its layer-matched and random masks",
            r"\frac{R - C}{R - L}",
        ),
    ),
    "Refusal edits": (
        Formula(
            "Margin at the end of a prompt: z logits, D and C the tokens that open refusals and compliance",
            r"m(x) = \frac{1}{|D|}\sum_{t \in D} z_t - \frac{1}{|C|}\sum_{t \in C} z_t",
        ),
        Formula(
            "Score of a row: r is the percentile rank within its layer, R its relevance to the margin",
            r"S_i = r\big(\mathbb{E}_{\mathrm{risk}} \max(-R_i, 0)\big) - r\big(\mathbb{E}_{\mathrm{base}}"
            r" \max(-R_i, 0)\big) - \lambda\, r(I_{\mathrm{lm}, i})",
        ),
        Formula(
            "Wilson's 95% interval of k refusals among n prompts",
            r"\frac{\hat p + \frac{z^2}{2n} \pm z\sqrt{\frac{\hat p(1 - \hat p)}{n} + \frac{z^2}{4n^2}}}{1 +"
            r" \frac{z^2}{n}}, \qquad \hat p = \tfrac{k}{n},\; z = 1.96",
        ),
        Formula(
            "p of an edit among n draws, and the prediction interval of one further draw",
            r"p = \frac{1 + \#\{\mathrm{draws} \ge \mathrm{edit}\}}{n + 1}, \qquad"
            r" \bar x \pm t_{n-1,\,.975}\; s \sqrt{1 + \tfrac{1}{n}}",
        ),
    ),
    "Judges": (Formula("Cohen's kappa, p the observed and e the chance agreement", r"\kappa = \frac{p - e}{1 - e}"),),
}
