// The methods of tensors that are functions of functions.h. A new method needs a line here and a line in tensor.h.
#include "lockstep/autograd/creation.h"
#include "lockstep/autograd/functions.h"

namespace lockstep {

Tensor Tensor::add(const Tensor& b, const Scalar& alpha) const { return lockstep::add(*this, b, alpha); }
Tensor Tensor::add(const Scalar& b, const Scalar& alpha) const { return lockstep::add(*this, b, alpha); }
Tensor Tensor::sub(const Tensor& b, const Scalar& alpha) const { return lockstep::sub(*this, b, alpha); }
Tensor Tensor::sub(const Scalar& b, const Scalar& alpha) const { return lockstep::sub(*this, b, alpha); }
Tensor Tensor::mul(const Tensor& b) const { return lockstep::mul(*this, b); }
Tensor Tensor::mul(const Scalar& b) const { return lockstep::mul(*this, b); }
Tensor Tensor::div(const Tensor& b) const { return lockstep::div(*this, b); }
Tensor Tensor::div(const Tensor& b, const DivOptions& options) const { return lockstep::div(*this, b, options); }
Tensor Tensor::div(const Scalar& b) const { return lockstep::div(*this, b); }
Tensor Tensor::neg() const { return lockstep::negate(*this); }
Tensor Tensor::clone() const { return lockstep::clone(*this); }
Tensor Tensor::contiguous() const { return to(Layout::plain); }
MaxResult Tensor::cummax(int dim) const { return lockstep::cummax(*this, dim); }
MaxResult Tensor::cummin(int dim) const { return lockstep::cummin(*this, dim); }
Tensor Tensor::median() const { return lockstep::median(*this); }
MaxResult Tensor::median(int dim, bool keepdim) const { return lockstep::median(*this, dim, keepdim); }
Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf, std::optional<double> neginf) const {
  return lockstep::nan_to_num(*this, nan, posinf, neginf);
}
Tensor Tensor::atan2(const Tensor& x) const { return lockstep::atan2(*this, x); }
Tensor Tensor::clamp(const Tensor& min, const Tensor& max) const { return lockstep::clamp(*this, min, max); }
UniqueResult Tensor::unique() const { return lockstep::unique(*this); }
UniqueResult Tensor::unique(int dim) const { return lockstep::unique(*this, dim); }
Tensor Tensor::bincount(const Tensor& weights, std::int64_t minlength) const {
  return lockstep::bincount(*this, weights, minlength);
}
Tensor Tensor::repeat_interleave(const Tensor& repeats, int dim) const {
  return lockstep::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::bernoulli() const { return lockstep::bernoulli(*this); }
Tensor Tensor::multinomial(std::int64_t num_samples, bool replacement) const {
  return lockstep::multinomial(*this, num_samples, replacement);
}
Tensor Tensor::expand_as(const Tensor& other) const { return lockstep::expand(*this, other.shape()); }
Tensor Tensor::reshape_as(const Tensor& other) const { return reshape(other.shape()); }
Tensor Tensor::view_as(const Tensor& other) const { return view(other.shape()); }
Tensor Tensor::abs() const { return lockstep::abs(*this); }
Tensor Tensor::square() const { return lockstep::square(*this); }
Tensor Tensor::sqrt() const { return lockstep::sqrt(*this); }
Tensor Tensor::rsqrt() const { return lockstep::rsqrt(*this); }
Tensor Tensor::reciprocal() const { return lockstep::reciprocal(*this); }
Tensor Tensor::exp() const { return lockstep::exp(*this); }
Tensor Tensor::log() const { return lockstep::log(*this); }
Tensor Tensor::log1p() const { return lockstep::log1p(*this); }
Tensor Tensor::sin() const { return lockstep::sin(*this); }
Tensor Tensor::cos() const { return lockstep::cos(*this); }
Tensor Tensor::sign() const { return lockstep::sign(*this); }
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return lockstep::clamp(*this, min, max);
}
Tensor Tensor::pow(const Scalar& exponent) const { return lockstep::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return lockstep::pow(*this, exponent); }
Tensor Tensor::maximum(const Tensor& b) const { return lockstep::maximum(*this, b); }
Tensor Tensor::minimum(const Tensor& b) const { return lockstep::minimum(*this, b); }
Tensor Tensor::relu() const { return lockstep::relu(*this); }
Tensor Tensor::sigmoid() const { return lockstep::sigmoid(*this); }
Tensor Tensor::tanh() const { return lockstep::tanh(*this); }
Tensor Tensor::softmax(int dim) const { return lockstep::softmax(*this, dim); }
Tensor Tensor::log_softmax(int dim) const { return lockstep::log_softmax(*this, dim); }
Tensor Tensor::logical_and(const Tensor& b) const { return lockstep::logical_and(*this, b); }
Tensor Tensor::logical_or(const Tensor& b) const { return lockstep::logical_or(*this, b); }
Tensor Tensor::logical_xor(const Tensor& b) const { return lockstep::logical_xor(*this, b); }
Tensor Tensor::logical_not() const { return lockstep::logical_not(*this); }
Tensor Tensor::eq(const Tensor& b) const { return lockstep::eq(*this, b); }
Tensor Tensor::eq(const Scalar& b) const { return lockstep::eq(*this, b); }
Tensor Tensor::ne(const Tensor& b) const { return lockstep::ne(*this, b); }
Tensor Tensor::ne(const Scalar& b) const { return lockstep::ne(*this, b); }
Tensor Tensor::lt(const Tensor& b) const { return lockstep::lt(*this, b); }
Tensor Tensor::lt(const Scalar& b) const { return lockstep::lt(*this, b); }
Tensor Tensor::le(const Tensor& b) const { return lockstep::le(*this, b); }
Tensor Tensor::le(const Scalar& b) const { return lockstep::le(*this, b); }
Tensor Tensor::gt(const Tensor& b) const { return lockstep::gt(*this, b); }
Tensor Tensor::gt(const Scalar& b) const { return lockstep::gt(*this, b); }
Tensor Tensor::ge(const Tensor& b) const { return lockstep::ge(*this, b); }
Tensor Tensor::ge(const Scalar& b) const { return lockstep::ge(*this, b); }
Tensor Tensor::masked_fill(const Tensor& mask, const Scalar& value) const {
  return lockstep::masked_fill(*this, mask, value);
}
Tensor Tensor::where(const Tensor& condition, const Tensor& other) const {
  return lockstep::where(condition, *this, other);
}
Tensor Tensor::where(const Tensor& condition, const Scalar& other) const {
  return lockstep::where(condition, *this, other);
}
Tensor Tensor::sum() const { return lockstep::sum(*this); }
Tensor Tensor::sum(const Dims& dims, bool keepdim) const { return lockstep::sum(*this, dims, keepdim); }
Tensor Tensor::mean() const { return lockstep::mean(*this); }
Tensor Tensor::mean(const Dims& dims, bool keepdim) const { return lockstep::mean(*this, dims, keepdim); }
Tensor Tensor::var(const Dims& dims) const { return lockstep::var(*this, dims); }
Tensor Tensor::var(const Dims& dims, const VarOptions& options) const { return lockstep::var(*this, dims, options); }
Tensor Tensor::var_of(const Dims& dims, bool unbiased, bool keepdim) const {
  return var(dims, {.correction = unbiased ? 1.0 : 0.0, .keepdim = keepdim});
}
Tensor Tensor::std_of(const Dims& dims, bool unbiased, bool keepdim) const {
  return std(dims, {.correction = unbiased ? 1.0 : 0.0, .keepdim = keepdim});
}
Tensor Tensor::std(const Dims& dims) const { return lockstep::std(*this, dims); }
Tensor Tensor::std(const Dims& dims, const VarOptions& options) const { return lockstep::std(*this, dims, options); }
Tensor Tensor::amax(const Dims& dims, bool keepdim) const { return lockstep::amax(*this, dims, keepdim); }
Tensor Tensor::amin(const Dims& dims, bool keepdim) const { return lockstep::amin(*this, dims, keepdim); }
Tensor Tensor::max() const { return lockstep::max(*this); }
MaxResult Tensor::max(int dim, bool keepdim) const { return lockstep::max(*this, dim, keepdim); }
Tensor Tensor::min() const { return lockstep::min(*this); }
MaxResult Tensor::min(int dim, bool keepdim) const { return lockstep::min(*this, dim, keepdim); }
Tensor Tensor::argmax(std::optional<int> dim, bool keepdim) const { return lockstep::argmax(*this, dim, keepdim); }
Tensor Tensor::argmin(std::optional<int> dim, bool keepdim) const { return lockstep::argmin(*this, dim, keepdim); }
Tensor Tensor::any(const Dims& dims, bool keepdim) const { return lockstep::any(*this, dims, keepdim); }
Tensor Tensor::all(const Dims& dims, bool keepdim) const { return lockstep::all(*this, dims, keepdim); }
Tensor Tensor::norm(double p, const Dims& dims, bool keepdim) const { return lockstep::norm(*this, p, dims, keepdim); }
Tensor Tensor::prod() const { return lockstep::prod(*this); }
Tensor Tensor::prod(int dim, bool keepdim) const { return lockstep::prod(*this, dim, keepdim); }
Tensor Tensor::logsumexp(const Dims& dims, bool keepdim) const { return lockstep::logsumexp(*this, dims, keepdim); }
Tensor Tensor::cumsum(int dim) const { return lockstep::cumsum(*this, dim); }
MaxResult Tensor::sort(int dim, bool descending) const { return lockstep::sort(*this, dim, descending); }
Tensor Tensor::argsort(int dim, bool descending) const { return lockstep::argsort(*this, dim, descending); }
MaxResult Tensor::topk(std::int64_t k, int dim, bool largest) const { return lockstep::topk(*this, k, dim, largest); }
Tensor Tensor::matmul(const Tensor& b) const { return lockstep::matmul(*this, b); }
Tensor Tensor::bmm(const Tensor& b) const { return lockstep::bmm(*this, b); }
Tensor Tensor::flatten(int start_dim, int end_dim) const { return lockstep::flatten(*this, start_dim, end_dim); }
Tensor Tensor::unflatten(int dim, const Shape& sizes) const { return lockstep::unflatten(*this, dim, sizes); }
Tensor Tensor::squeeze(const Dims& dims) const { return lockstep::squeeze(*this, dims); }
Tensor Tensor::unsqueeze(int dim) const { return lockstep::unsqueeze(*this, dim); }
Tensor Tensor::permute(std::initializer_list<int> dims) const { return lockstep::permute(*this, dims); }
Tensor Tensor::transpose(int dim0, int dim1) const { return lockstep::transpose(*this, dim0, dim1); }
Tensor Tensor::t() const {
  check(defined() && dim() <= 2, "t: {}, expected at most two axes: use transpose(dim0, dim1)", *this);
  return dim() == 2 ? lockstep::transpose(*this, 0, 1) : *this;
}
Tensor Tensor::expand(Shape shape) const { return lockstep::expand(*this, shape); }
Tensor Tensor::triu(std::int64_t diagonal) const { return lockstep::triu(*this, diagonal); }
Tensor Tensor::tril(std::int64_t diagonal) const { return lockstep::tril(*this, diagonal); }
Tensor Tensor::slice(int dim, std::optional<std::int64_t> start, std::optional<std::int64_t> end,
                     std::int64_t step) const {
  return lockstep::slice(*this, dim, start, end, step);
}
std::vector<Tensor> Tensor::split(const std::vector<std::int64_t>& sizes, int dim) const {
  return lockstep::split(*this, sizes, dim);
}
std::vector<Tensor> Tensor::split(std::int64_t split_size, int dim) const {
  return lockstep::split(*this, split_size, dim);
}
std::vector<Tensor> Tensor::chunk(int chunks, int dim) const { return lockstep::chunk(*this, chunks, dim); }
std::vector<Tensor> Tensor::unbind(int dim) const { return lockstep::unbind(*this, dim); }
Tensor Tensor::take_along_dim(const Tensor& index, int dim) const {
  return lockstep::take_along_dim(*this, index, dim);
}
Tensor Tensor::index_select(int dim, const Tensor& index) const { return lockstep::index_select(*this, dim, index); }
Tensor Tensor::scatter_add(int dim, const Tensor& index, const Tensor& src) const {
  return lockstep::scatter_add(*this, dim, index, src);
}
Tensor Tensor::floor() const { return lockstep::floor(*this); }
Tensor Tensor::ceil() const { return lockstep::ceil(*this); }
Tensor Tensor::round() const { return lockstep::round(*this); }
Tensor Tensor::trunc() const { return lockstep::trunc(*this); }
Tensor Tensor::tan() const { return lockstep::tan(*this); }
Tensor Tensor::erf() const { return lockstep::erf(*this); }
Tensor Tensor::expm1() const { return lockstep::expm1(*this); }
Tensor Tensor::log2() const { return lockstep::log2(*this); }
Tensor Tensor::log10() const { return lockstep::log10(*this); }
Tensor Tensor::isnan() const { return lockstep::isnan(*this); }
Tensor Tensor::isinf() const { return lockstep::isinf(*this); }
Tensor Tensor::isfinite() const { return lockstep::isfinite(*this); }
Tensor Tensor::remainder(const Tensor& b) const { return lockstep::remainder(*this, b); }
Tensor Tensor::remainder(const Scalar& b) const { return lockstep::remainder(*this, b); }
Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const {
  return lockstep::masked_fill(*this, mask, value);
}
Tensor Tensor::masked_select(const Tensor& mask) const { return lockstep::masked_select(*this, mask); }
Tensor Tensor::nonzero() const { return lockstep::nonzero(*this); }
Tensor Tensor::cumprod(int dim) const { return lockstep::cumprod(*this, dim); }
Tensor Tensor::mm(const Tensor& b) const { return lockstep::mm(*this, b); }
Tensor Tensor::mv(const Tensor& b) const { return lockstep::mv(*this, b); }
Tensor Tensor::dot(const Tensor& b) const { return lockstep::dot(*this, b); }
Tensor Tensor::flip(const Dims& dims) const { return lockstep::flip(*this, dims); }
Tensor Tensor::roll(std::int64_t shift, std::optional<int> dim) const { return lockstep::roll(*this, shift, dim); }
Tensor Tensor::repeat(const Shape& sizes) const { return lockstep::repeat(*this, sizes); }
Tensor Tensor::tile(const Shape& dims) const { return lockstep::tile(*this, dims); }
Tensor Tensor::movedim(const Dims& source, const Dims& destination) const {
  return lockstep::movedim(*this, source, destination);
}
Tensor Tensor::gather(int dim, const Tensor& index) const { return lockstep::gather(*this, dim, index); }
Tensor Tensor::scatter(int dim, const Tensor& index, const Tensor& src) const {
  return lockstep::scatter(*this, dim, index, src);
}
Tensor Tensor::scatter(int dim, const Tensor& index, const Scalar& value) const {
  return lockstep::scatter(*this, dim, index, value);
}
Tensor Tensor::index_add(int dim, const Tensor& index, const Tensor& src, const Scalar& alpha) const {
  return lockstep::index_add(*this, dim, index, src, alpha);
}

}  // namespace lockstep
