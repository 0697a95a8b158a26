// A confusion matrix as a picture.
#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

// Returns an SVG. Row i, column j: the number of examples of class i predicted as j; darker is more of the row.
std::string confusion_svg(const std::vector<std::vector<double>>& table, const std::vector<std::string>& names);

}  // namespace lockstep::app
