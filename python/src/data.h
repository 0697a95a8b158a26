// Converts data sets of Python to those of the library, for DataLoader, Trainer, and evaluate.
#pragma once

#include <memory>
#include <optional>

#include "bindings.h"

namespace lockstep::python {

// Returns the current C++ data set of an object of lockstep.datasets or lockstep.utils.data, if it has one; otherwise a
// data set that calls the object's __len__ and __getitem__ (or __getitems__). Their items are tensors, arrays, numbers,
// or tuples, lists, or dicts of them: the parts of an example, in order. Call it with the interpreter lock.
std::shared_ptr<const Dataset> as_dataset(py::handle object);

// While it exists, random transforms of this thread use the key of this example, or of this batch.
class ExampleScope {
 public:
  explicit ExampleScope(RandomKey key);
  ~ExampleScope();
  ExampleScope(const ExampleScope&) = delete;
  ExampleScope& operator=(const ExampleScope&) = delete;

 private:
  std::optional<RandomKey> outer_;
  std::uint64_t outer_used_;
};
void add_transforms(py::module_& m);

// For a data set of Python whose loop is ending: if `stop`, it throws instead of making an example, so that threads
// that make batches end soon; if not, it makes examples again. Does nothing for other data sets.
void stop_examples(const Dataset* dataset, bool stop);

}  // namespace lockstep::python
