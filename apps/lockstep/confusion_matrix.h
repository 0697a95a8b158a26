// A confusion matrix as text and as a picture. Row i, column j of `table`: the number of examples of class i predicted
// as j.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

// Returns the matrix with headings, without classes that do not occur, and the most frequent confusions.
std::string confusion_text(const std::string& name, const std::vector<std::vector<double>>& table,
                           const std::vector<std::string>& class_names);

// Returns an SVG; darker is more of the row.
std::string confusion_svg(const std::vector<std::vector<double>>& table, const std::vector<std::string>& names);

}  // namespace lockstep::app
