// Sphinx's scores of search results, with two changes: a result whose title contains the query as typed comes
// first, and the pages of the section "Test evidence" come after all others.
var Scorer = {
  score: (result) => {
    const [docname, title, , , score] = result;
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const isInTitle = title.toLowerCase().includes(query.trim().toLowerCase());
    return score + (isInTitle ? 10 : 0) - (docname.startsWith("evidence/") ? 20 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
