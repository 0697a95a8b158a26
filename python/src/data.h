// Data sets of Python as the library's: what DataLoader, Trainer, and evaluate take.
#pragma once

#include <memory>
#include <optional>

#include "bindings.h"

namespace lockstep::python {

// The C++ data set of an object of lockstep.datasets or lockstep.utils.data as it is now, if it has one; otherwise a
// data set that calls the object's __len__ and __getitem__ (or __getitems__), whose items are tensors, arrays, numbers,
// or tuples, lists, or dicts of them: the parts of an example, in their order. Call it with the interpreter lock.
std::shared_ptr<const Dataset> as_dataset(py::handle object);

// While it lives, random transforms of this thread have the key of this example, or of this batch.
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

// For a data set of Python whose loop is ending: from now on (or not any more) it throws instead of making an example,
// so that threads that make batches end soon. Other data sets are left alone.
void stop_examples(const Dataset* dataset, bool stop);

}  // namespace lockstep::python
