// SPDX-License-Identifier: Apache-2.0
// Operators for values of a graph that is being built, so that a decomposition, a gradient or a translation reads like its
// formula:
//
//   V y = select(x > 0.0, x, x * slope);
//
// Operands have one dtype and are broadcast; a plain number becomes a 0-d constant of the other operand's dtype.
#pragma once

namespace tessera::sdk {

// Base of a class V that offers
//   V call(const char* op) const;                            // the op applied to this value,
//   V call(const char* op, const V& b) const;                // and to another,
//   V call(const char* op, const V& b, const V& c) const;    // or two others
//   V like(double number) const;                             // a 0-d constant of this value's dtype
template <class V>
class Formula {
  friend V operator+(const V& a, const V& b) { return a.call("add", b); }
  friend V operator+(const V& a, double b) { return a.call("add", a.like(b)); }
  friend V operator-(const V& a, const V& b) { return a.call("sub", b); }
  friend V operator-(const V& a, double b) { return a.call("sub", a.like(b)); }
  friend V operator-(double a, const V& b) { return b.like(a).call("sub", b); }
  friend V operator-(const V& a) { return a.call("neg"); }
  friend V operator*(const V& a, const V& b) { return a.call("mul", b); }
  friend V operator*(const V& a, double b) { return a.call("mul", a.like(b)); }
  friend V operator/(const V& a, const V& b) { return a.call("div", b); }
  friend V operator/(const V& a, double b) { return a.call("div", a.like(b)); }
  friend V operator/(double a, const V& b) { return b.like(a).call("div", b); }
  friend V operator==(const V& a, const V& b) { return a.call("eq", b); }
  friend V operator==(const V& a, double b) { return a.call("eq", a.like(b)); }
  friend V operator<(const V& a, const V& b) { return a.call("lt", b); }
  friend V operator<(const V& a, double b) { return a.call("lt", a.like(b)); }
  friend V operator<=(const V& a, const V& b) { return a.call("le", b); }
  friend V operator<=(const V& a, double b) { return a.call("le", a.like(b)); }
  friend V operator>(const V& a, const V& b) { return a.call("gt", b); }
  friend V operator>(const V& a, double b) { return a.call("gt", a.like(b)); }
  friend V operator>=(const V& a, const V& b) { return a.call("ge", b); }
  friend V operator>=(const V& a, double b) { return a.call("ge", a.like(b)); }
  // Not && || !, which would read as tests of whether there is a value, and would not build their right operand.
  friend V both(const V& a, const V& b) { return a.call("logical_and", b); }
  friend V either(const V& a, const V& b) { return a.call("logical_or", b); }
  friend V negated(const V& a) { return a.call("logical_not"); }
  friend V maximum(const V& a, const V& b) { return a.call("maximum", b); }
  friend V minimum(const V& a, const V& b) { return a.call("minimum", b); }
  friend V select(const V& cond, const V& a, const V& b) { return cond.call("select", a, b); }
  friend V select(const V& cond, const V& a, double b) { return cond.call("select", a, a.like(b)); }
  friend V select(const V& cond, double a, const V& b) { return cond.call("select", b.like(a), b); }
};

}  // namespace tessera::sdk
