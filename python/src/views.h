// PyTorch's views. Where PyTorch's result is a view, the library's shares the memory, or is a copy, because every array
// is dense. A copy behaves as a view does: what is written to it goes to the tensor that it was read from, too, and its
// next use reads that tensor anew if it has been written since.
//
//   row = x[0]           # shares x's memory
//   col = x[:, 0]        # a copy, with a ViewLink
//   col += 1             # ... is written back to x
//   x.zero_(); col       # ... reads x anew
//
// Writes are those that the memory counts (tensor/storage.h): all of the library's, but not another library's.
#pragma once

#include "bindings.h"
#include "strides.h"

namespace lockstep::python {

// y from x.
using Read = std::function<Tensor(const Tensor& x)>;
// Takes x's elements and y's, both without a history, and writes the second to the first.
using WriteBack = std::function<void(const Tensor& x, const Tensor& y)>;

// Of x's memory so far.
std::uint64_t writes_to(const Tensor& x);

struct ViewKind {
  Read read;
  WriteBack back;
  Strides strides;  // in PyTorch
  // To the tensor before its elements were read, if another thread may have written since.
  std::optional<std::uint64_t> writes = {};
};

// How a Python tensor's elements come from another tensor's, and get there.
struct ViewLink {
  // Of a tensor of its own that PyTorch would not lay out in plain order.
  ViewLink(Strides of, Tensor now) : strides(std::move(of)), elements(std::move(now)), shares(false) {}
  ViewLink(std::shared_ptr<ViewLink> of, Tensor from, std::optional<Parameter> of_parameter, Tensor now, ViewKind how,
           const std::shared_ptr<Memory>& seen);
  ~ViewLink();
  ViewLink(const ViewLink&) = delete;
  ViewLink& operator=(const ViewLink&) = delete;

  // Reads the elements anew if they are not those of the tensor that they come from. With the interpreter lock, which
  // it may release.
  void refresh();
  // After a write to the elements: writes them to the tensor that they come from. If that is refused, the next use
  // reads it anew. With the interpreter lock.
  void written();
  // Whether a Python tensor other than that of this link sees a write. Its own memory is `own`.
  bool shows(const std::shared_ptr<Memory>& own) const;
  // Whether they come from a parameter or a buffer, but the one with this memory.
  bool reads_module(const std::shared_ptr<Memory>& but) const;
  // Somebody else has the memory from now on: the next use reads it anew. False if it cannot.
  bool give_memory();
  bool has_base() const { return parent_ || parameter_ || original_.defined(); }
  // Forgets the tensor that the elements come from if nobody can write it any more: x = x.t() in a loop keeps no chain.
  void cut_if_unreachable();

  const Strides strides;
  Tensor elements;  // the Python tensor is this handle, once it is used
  // Whether the elements are the parent's own.
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
  // Of the tensor that the elements come from: held by its Python tensors and by all links to it.
  const std::shared_ptr<Memory> shown_;
  // What the elements are a copy of: the base's memory after this many writes. Null: they are to be read anew.
  std::weak_ptr<Storage> source_;
  std::uint64_t version_ = 0;
};

// The Python tensor of y, a view of `self`; with `is_linked` = false, it needs a ViewLink.
py::object unlinked_view(py::handle self, const Tensor& y, bool& is_linked);
void link(py::handle self, py::handle view, ViewKind kind);
// PyTorch's.
Strides strides_of(py::handle self);
// The Python tensor of y, which kind(strides of self) tells how to read from `self`, a view where PyTorch has one.
template <typename K>
py::object view_of(py::handle self, const Tensor& y, const K& kind) {
  bool is_linked = false;
  py::object view = unlinked_view(self, y, is_linked);
  if (!is_linked) link(self, view, kind(strides_of(self)));
  return view;
}
// The same for the same elements in another shape, or, if PyTorch would have to copy them, a tensor of its own.
py::object reshaped_view(py::handle self, const Tensor& y);
// x.contiguous(): self, or a tensor of its own.
py::object contiguous_of(py::handle self);
// x.clone(): in the order of x's elements in memory, as PyTorch keeps it.
py::object clone_of(py::handle self);
// The views x[0], x[1], ...
py::tuple rows_of(py::handle self);
// After a write to self's memory.
void after_write(py::handle self);
// Whether another Python tensor shares self's memory or, in PyTorch, would.
bool has_views(py::handle self);
// Whether x is, or is a view of, a parameter or a buffer other than the one that self is, or is a view of.
bool is_of_other_parameter(py::handle x, py::handle self);
// From now on, self is a tensor of its own.
void forget_views(py::handle self);
// Whether a write to self's memory that the library does not see would be lost.
bool is_copy(py::handle self);

// view_of(self, f(x), ...) for x, the tensor of `self`. `strides` takes those of x.
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
