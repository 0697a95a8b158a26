// PyTorch's views. If PyTorch's result is a view, the library's result shares the memory or, because every array is
// dense, is a copy. A copy behaves like a view: a write to it is also written to the tensor that it was read from, and
// its next use reads that tensor again if it has been written since.
//
//   row = x[0]           # shares x's memory
//   col = x[:, 0]        # a copy, with a ViewLink
//   col += 1             # ... is written back to x
//   x.zero_(); col       # ... reads x anew
//
// Only writes that the memory counts (tensor/storage.h) have this effect: all of the library's, not another library's.
#pragma once

#include "bindings.h"
#include "strides.h"

namespace lockstep::python {

// Reads y from x.
using Read = std::function<Tensor(const Tensor& x)>;
// Takes the elements of x and y, both without a history, and writes those of y to x.
using WriteBack = std::function<void(const Tensor& x, const Tensor& y)>;

// Returns the number of writes to x's memory so far.
std::uint64_t writes_to(const Tensor& x);

struct ViewKind {
  Read read;
  WriteBack back;
  Strides strides;  // in PyTorch
  // Number of writes to the source before its elements were read. Set it if another thread may have written since.
  std::optional<std::uint64_t> writes = {};
};

// How a Python tensor's elements are read from another tensor, and written back.
struct ViewLink {
  // A tensor without a source that PyTorch would not lay out in plain order.
  ViewLink(Strides of, Tensor now) : strides(std::move(of)), elements(std::move(now)), shares(false) {}
  ViewLink(std::shared_ptr<ViewLink> of, Tensor from, std::optional<Parameter> of_parameter, Tensor now, ViewKind how,
           const std::shared_ptr<Memory>& seen);
  ~ViewLink();
  ViewLink(const ViewLink&) = delete;
  ViewLink& operator=(const ViewLink&) = delete;

  // Reads the elements again if the source has changed. Call it with the interpreter lock, which it may release.
  void refresh();
  // Call it after a write to the elements, with the interpreter lock: writes them to their source. If that fails, the
  // next use reads the source again.
  void written();
  // Whether a Python tensor other than this link's sees a write. `own` is the memory of this link's tensor.
  bool shows(const std::shared_ptr<Memory>& own) const;
  // Whether the elements come from a parameter or a buffer whose memory is not `but`.
  bool reads_module(const std::shared_ptr<Memory>& but) const;
  // Gives the memory away: the next use reads the elements again. Returns false if it cannot.
  bool give_memory();
  bool has_base() const { return parent_ || parameter_ || original_.defined(); }
  // Forgets the source if nobody can write it any more, so that x = x.t() in a loop does not build a chain.
  void cut_if_unreachable();

  const Strides strides;
  Tensor elements;  // shared with the Python tensor after its first use
  // Whether the elements share the parent's memory.
  const bool shares;

 private:
  Tensor base() const;
  bool stale(const Tensor& base) const;
  void note(const Tensor& base, std::uint64_t writes);
  bool is_reachable() const;

  std::shared_ptr<ViewLink> parent_;
  std::optional<Parameter> parameter_;
  Tensor original_;
  const Read read_;
  const WriteBack back_;
  // Memory of the source: also held by its Python tensors and by all links to it.
  const std::shared_ptr<Memory> shown_;
  // The elements are a copy of this memory after `version_` writes. Null: they must be read again.
  std::weak_ptr<Storage> source_;
  std::uint64_t version_ = 0;
};

// Returns the Python tensor of y, a view of `self`. Sets `is_linked`; if false, it needs a ViewLink.
py::object unlinked_view(py::handle self, const Tensor& y, bool& is_linked);
void link(py::handle self, py::handle view, ViewKind kind);
// Returns the strides that PyTorch would have.
Strides strides_of(py::handle self);
// Returns the Python tensor of y, a view if PyTorch has one. kind(strides of self) tells how to read y from `self`.
template <typename K>
py::object view_of(py::handle self, const Tensor& y, const K& kind) {
  bool is_linked = false;
  py::object view = unlinked_view(self, y, is_linked);
  if (!is_linked) link(self, view, kind(strides_of(self)));
  return view;
}
// The same for elements in the same order with another shape; a new tensor if PyTorch would have to copy them.
py::object reshaped_view(py::handle self, const Tensor& y);
// Returns x.contiguous(): self, or a new tensor.
py::object contiguous_of(py::handle self);
// Returns x.clone(), which keeps the order of x's elements in memory, as in PyTorch.
py::object clone_of(py::handle self);
// Returns the views x[0], x[1], ...
py::tuple rows_of(py::handle self);
// Call it after a write to self's memory.
void after_write(py::handle self);
// Whether another Python tensor shares self's memory, or would share it in PyTorch.
bool has_views(py::handle self);
// Whether x is a parameter or a buffer, or a view of one, and self is neither the same one nor a view of it.
bool is_of_other_parameter(py::handle x, py::handle self);
// Makes self a tensor of its own, which is no view.
void forget_views(py::handle self);
// Whether self is a copy, in which a write that the library does not see would be lost.
bool is_copy(py::handle self);

// Returns view_of(self, f(x), ...) for x, the tensor of `self`. `strides` takes those of x.
template <typename F, typename S>
py::object viewed(py::handle self, const F& f, const WriteBack& back, const S& strides) {
  const Tensor x = self.cast<Tensor>();
  const std::uint64_t writes = writes_to(x);
  Tensor y;
  {
    const WithoutLock describing;
    y = f(x);
  }
  return view_of(self, y, [&](const Strides& before) {
    return ViewKind{.read = f, .back = back, .strides = strides(before), .writes = writes};
  });
}

}  // namespace lockstep::python
