// The data that the options name: the user's own pictures, tables, and arrays, Fashion-MNIST, or a text.
#pragma once

#include <memory>
#include <string>

#include "apps/lockstep/options/common_options.h"

namespace lockstep::app {

// Reads --data into options.source and sets options.own_data if they are pictures, a table, or arrays. Otherwise
// returns why they are not; load_data() reads Fashion-MNIST and texts. For a text, chooses the model if the user did
// not. Throws UsageError for options that do not fit the data.
std::string open_own_data(CommonOptions& options, const CLI::App& app);
// Returns the data of --data, or Fashion-MNIST. Reads them unless open_own_data() has done so.
std::shared_ptr<const DataSource> load_data(const CommonOptions& options);
// Returns whether the data are like Fashion-MNIST and MNIST: 28 x 28 bytes scaled to [0, 1], ten classes, a part for
// tests. Recipes for such data name neither schema nor split.
bool is_plain_mnist(const DataSource& data);
// Returns --data, or the folder of Fashion-MNIST if it is not given, as an absolute path.
std::string data_path(const CommonOptions& options);
// Writes notices if --limit-train or --limit-test exceeds the number of examples, or leaves out a class.
void notice_limits(const CommonOptions& options, const DataSource& data);
// Returns the schema of Fashion-MNIST, or of a text with as many characters as a play has, for models without data.
DataSchema stand_in_schema(const CommonOptions& options);
// Returns placeholder examples of that schema, for timing and graphs.
std::shared_ptr<const Dataset> made_up_examples(const CommonOptions& options, std::int64_t count);

}  // namespace lockstep::app
