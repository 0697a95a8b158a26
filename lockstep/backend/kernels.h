// Internal: kernel calls as data. A call is a struct in the namespace kernels, with options and views. views() lists
// the views that the kernel reads and writes, so work around every kernel (f16 through f32, logging, copies to a GPU)
// is one template for all calls:
//
//   struct AvgPool {
//     Pool2dOptions options;
//     View x, y;
//     static void views(auto& c, const auto& in, const auto& out) { in(c.x), out(c.y); }
//   };
//
// views() calls in() with each view, or span of views, that the kernel only reads, and out() with each that it writes.
#pragma once

#include <memory>
#include <utility>

#include "lockstep/backend/context.h"
#include "lockstep/tensor/view.h"

namespace lockstep {

namespace detail {
// A `Family` whose kernels all call self.each(context, call).
template <typename Self, typename Family, typename... Calls>
class EachCall : public Family {};
template <typename Self, typename Family, typename Call, typename... Rest>
class EachCall<Self, Family, Call, Rest...> : public EachCall<Self, Family, Rest...> {
 public:
  using EachCall<Self, Family, Rest...>::run;
  void run(KernelContext& context, const Call& call) override { static_cast<Self*>(this)->each(context, call); }
};
}  // namespace detail

// A family of kernels: one for each of these calls.
template <typename Call, typename... Rest>
class Kernels : public Kernels<Rest...> {
 public:
  using Kernels<Rest...>::run;
  virtual void run(KernelContext&, const Call&) = 0;

  // A base class for `Self`, which derives from `Family` and has one template each(KernelContext&, const Call&) for all
  // calls.
  template <typename Self, typename Family>
  using Each = detail::EachCall<Self, Family, Call, Rest...>;
};
template <typename Call>
class Kernels<Call> {
 public:
  virtual ~Kernels() = default;
  virtual void run(KernelContext&, const Call&) = 0;
};

// The kernels of a family, with around(kernels, context, call) in place of each kernels.run(context, call).
template <typename Family, typename Around>
class KernelsWith : public Family::template Each<KernelsWith<Family, Around>, Family> {
 public:
  explicit KernelsWith(std::unique_ptr<Family> kernels, Around around = {})
      : kernels_(std::move(kernels)), around_(std::move(around)) {}
  void each(KernelContext& context, const auto& call) { around_(*kernels_, context, call); }

 protected:
  const Family& kernels() const { return *kernels_; }

 private:
  std::unique_ptr<Family> kernels_;
  Around around_;
};

}  // namespace lockstep
