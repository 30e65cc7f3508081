// SPDX-License-Identifier: Apache-2.0
// The program of digits.cpp, compiled by nvcc for a GPU.
#include "digits.cpp"
