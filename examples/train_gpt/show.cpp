// SPDX-License-Identifier: Apache-2.0
#include "show.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace train_gpt {

using Clock = std::chrono::steady_clock;

Progress::Progress(int64_t first, int64_t total, int64_t tokens_per_step)
    : first_(first), total_(total), tokens_(tokens_per_step), terminal_(::isatty(2) != 0), start_(Clock::now()) {}

void Progress::step(int64_t done, double loss, double lr) {
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - shown_).count();
  if (done != total_ && done != first_ + 1 && since < (terminal_ ? 0.1 : 10)) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done - first_) / std::max(seconds, 1e-9);
  const auto left = static_cast<long>(static_cast<double>(total_ - done) / rate);
  if (terminal_) {
    constexpr int kWidth = 30;
    const auto full = static_cast<int>(kWidth * done / std::max<int64_t>(1, total_));
    std::fprintf(stderr, "\r[%.*s%.*s] ", full, "##############################", kWidth - full,
                 "..............................");
  }
  std::fprintf(stderr, "step %lld of %lld  loss %.4f  rate %.2e  %.0f tokens/s  %ld:%02ld left%s", static_cast<long long>(done),
               static_cast<long long>(total_), loss, lr, rate * static_cast<double>(tokens_), left / 60, left % 60,
               terminal_ ? "\033[K" : "\n");
  std::fflush(stderr);
}

void Progress::end() {
  if (terminal_) std::fprintf(stderr, "\n");
}

std::string loss_curve(const std::vector<float>& losses) {
  constexpr double kWidth = 720, kHeight = 360, kLeft = 60, kRight = 20, kTop = 30, kBottom = 50;
  std::vector<double> mean;
  double low = HUGE_VAL, high = -HUGE_VAL, running = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    running = i == 0 ? losses[0] : running * 0.95 + 0.05 * losses[i];
    mean.push_back(running);
    if (!std::isfinite(losses[i])) continue;
    low = std::min(low, static_cast<double>(losses[i]));
    high = std::max(high, static_cast<double>(losses[i]));
  }
  if (!(low <= high)) low = 0, high = 1;
  if (high - low < 1e-6) high = low + 1;
  const double last = std::max<double>(1, static_cast<double>(losses.size()) - 1);
  const auto x = [&](double step) { return kLeft + (kWidth - kLeft - kRight) * step / last; };
  const auto y = [&](double loss) { return kTop + (kHeight - kTop - kBottom) * (high - loss) / (high - low); };
  char text[256];
  std::string out;
  const auto add = [&](const char* format, auto... values) {
    std::snprintf(text, sizeof text, format, values...);
    out += text;
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n",
      kWidth, kHeight);
  add("<rect width=\"%.0f\" height=\"%.0f\" fill=\"white\"/>\n<text x=\"%.0f\" y=\"18\">Training loss by step</text>\n", kWidth,
      kHeight, kLeft);
  for (int i = 0; i <= 4; ++i) {
    const double loss = low + (high - low) * i / 4, step = last * i / 4;
    add("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", kLeft, kWidth - kRight, y(loss), y(loss));
    add("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", kLeft - 6, y(loss) + 4, loss);
    add("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.0f</text>\n", x(step), kHeight - kBottom + 18, step);
  }
  const auto line = [&](const char* colour, auto value) {
    add("<polyline fill=\"none\" stroke=\"%s\" points=\"", colour);
    const size_t stride = std::max<size_t>(1, losses.size() / 2000);  // more points than pixels show nothing more
    for (size_t i = 0; i < losses.size(); i += stride)
      if (std::isfinite(value(i))) add("%.1f,%.1f ", x(static_cast<double>(i)), y(value(i)));
    out += "\"/>\n";
  };
  line("#b0c4de", [&](size_t i) { return static_cast<double>(losses[i]); });
  line("#1f4e8c", [&](size_t i) { return mean[i]; });
  add("<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">step</text>\n</svg>\n", (kLeft + kWidth - kRight) / 2, kHeight - 12);
  return out;
}

}  // namespace train_gpt
