// Sphinx's scores of search results, with the pages of the section "Test evidence" after all others.
var Scorer = {
  score: (result) => {
    const [docname, , , , score] = result;
    return docname.startsWith("evidence/") ? score - 20 : score;
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
