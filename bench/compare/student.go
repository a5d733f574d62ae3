package compare

import "math"

// TCDF is the distribution function of Student's t with df > 0 degrees of freedom.
func TCDF(t, df float64) float64 {
	if t == 0 {
		return 0.5
	}
	if math.IsInf(t, 0) {
		if t > 0 {
			return 1
		}
		return 0
	}
	tail := betaRegularized(df/(df+t*t), df/2, 0.5) / 2
	if t > 0 {
		return 1 - tail
	}
	return tail
}

// TQuantile is the inverse of TCDF for 0 < p < 1.
func TQuantile(p, df float64) float64 {
	if p == 0.5 {
		return 0
	}
	if p < 0.5 {
		return -TQuantile(1-p, df)
	}
	low, high := 0.0, 1.0
	for TCDF(high, df) < p && high < 1e300 {
		low, high = high, high*2
	}
	for range 200 {
		mid := low + (high-low)/2
		if mid == low || mid == high {
			break
		}
		if TCDF(mid, df) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return low + (high-low)/2
}

// betaRegularized is the regularized incomplete beta function I_x(a, b), by its continued fraction.
func betaRegularized(x, a, b float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= 1 {
		return 1
	}
	// The fraction converges fast below the mean of the distribution; above it the symmetric one is used.
	if x > (a+1)/(a+b+2) {
		return 1 - betaRegularized(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	return front * betaFraction(x, a, b)
}

// betaFraction evaluates the continued fraction of the incomplete beta function from the front (modified Lentz).
func betaFraction(x, a, b float64) float64 {
	const tiny = 1e-300
	clamp := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c := 1.0
	d := 1 / clamp(1-(a+b)*x/(a+1))
	f := d
	for m := 1.0; m <= 500; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / clamp(1+even*d)
		c = clamp(1 + even/c)
		f *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / clamp(1+odd*d)
		c = clamp(1 + odd/c)
		step := d * c
		f *= step
		if math.Abs(step-1) < 1e-15 {
			break
		}
	}
	return f
}
