#include "lockstep/nn/init.h"

namespace lockstep::init {
namespace {

std::string text_of(const KaimingOptions& o) {
  return fmt::format("a={}, mode={}", o.a, o.mode == FanMode::fan_in ? "fan_in" : "fan_out");
}
std::string text_of(const TruncatedNormalOptions& o) {
  return fmt::format("mean={}, std={}, a={}, b={}", o.mean, o.stddev, o.a, o.b);
}
void initialize_again(Module& net, const Initializer& initializer) {
  net.initialize(initializer, InitializeOptions{.force_reinit = true});
}

}  // namespace

void uniform_(const Parameter& p, double a, double b) { p.reset(Uniform(a, b), fmt::format("uniform_({}, {})", a, b)); }
void normal_(const Parameter& p, double mean, double std) {
  p.reset(Normal(std, mean), fmt::format("normal_({}, {})", mean, std));
}
void trunc_normal_(const Parameter& p, const TruncatedNormalOptions& options) {
  p.reset(TruncatedNormal(options), "trunc_normal_(" + text_of(options) + ")");
}
void constant_(const Parameter& p, double value) { p.reset(Constant(value), fmt::format("constant_({})", value)); }
void zeros_(const Parameter& p) { constant_(p, 0); }
void ones_(const Parameter& p) { constant_(p, 1); }
void xavier_uniform_(const Parameter& p, double gain) {
  p.reset(XavierUniform(gain), fmt::format("xavier_uniform_({})", gain));
}
void xavier_normal_(const Parameter& p, double gain) {
  p.reset(XavierNormal(gain), fmt::format("xavier_normal_({})", gain));
}
void kaiming_uniform_(const Parameter& p, const KaimingOptions& options) {
  p.reset(KaimingUniform(options), "kaiming_uniform_(" + text_of(options) + ")");
}
void kaiming_normal_(const Parameter& p, const KaimingOptions& options) {
  p.reset(KaimingNormal(options), "kaiming_normal_(" + text_of(options) + ")");
}
void orthogonal_(const Parameter& p, double gain) { p.reset(Orthogonal(gain), fmt::format("orthogonal_({})", gain)); }

void uniform_(Module& net, double a, double b) { initialize_again(net, Uniform(a, b)); }
void normal_(Module& net, double mean, double std) { initialize_again(net, Normal(std, mean)); }
void trunc_normal_(Module& net, const TruncatedNormalOptions& options) {
  initialize_again(net, TruncatedNormal(options));
}
void xavier_uniform_(Module& net, double gain) { initialize_again(net, XavierUniform(gain)); }
void xavier_normal_(Module& net, double gain) { initialize_again(net, XavierNormal(gain)); }
void kaiming_uniform_(Module& net, const KaimingOptions& options) { initialize_again(net, KaimingUniform(options)); }
void kaiming_normal_(Module& net, const KaimingOptions& options) { initialize_again(net, KaimingNormal(options)); }
void orthogonal_(Module& net, double gain) { initialize_again(net, Orthogonal(gain)); }

}  // namespace lockstep::init
